! The emulator as a forecast model would write it without a library: loops over a column's layers with the intrinsic
! erf, compiled once for each REAL_KIND as module MODULE_NAME; and a loop of one-column calls of liblockstep. Threads
! share the columns if there are at least 500.
!
! Layout  weights of a layer (in, out), then its biases (out), layer after layer in one array; x(n_in, n), y(n_out, n),
!         jacobian(n_in, n_out, n) in physical units
module MODULE_NAME
  use, intrinsic :: iso_c_binding
  use lockstep
  implicit none
  private
  public :: predict, jacobian, one_column_calls
  integer, parameter :: rk = REAL_KIND

contains

  subroutine predict(n, n_in, n_out, hidden, layers, weights, moments, x, y, threads) bind(c, name=PREDICT_NAME)
    integer(c_long), value :: n, n_in, n_out, hidden, layers
    integer(c_int), value :: threads
    real(rk), intent(in) :: weights(*), moments(*), x(n_in, n)
    real(rk), intent(out) :: y(n_out, n)
    real(rk) :: h(max(n_in, hidden), 0:layers), slope(hidden, layers)
    integer(c_long) :: j
    !$omp parallel do private(h, slope) num_threads(threads) if(n >= 500)
    do j = 1, n
      call forward(n_in, n_out, hidden, layers, weights, moments, x(:, j), .false., h, slope, y(:, j))
    end do
  end subroutine

  subroutine jacobian(n, n_in, n_out, hidden, layers, weights, moments, x, jac, threads) bind(c, name=JACOBIAN_NAME)
    integer(c_long), value :: n, n_in, n_out, hidden, layers
    integer(c_int), value :: threads
    real(rk), intent(in) :: weights(*), moments(*), x(n_in, n)
    real(rk), intent(out) :: jac(n_in, n_out, n)
    real(rk) :: h(max(n_in, hidden), 0:layers), slope(hidden, layers), y(n_out), s(max(n_in, hidden)), g(hidden)
    integer(c_long) :: j, o, k, at, width
    !$omp parallel do private(h, slope, y, s, g, o, k, at, width) num_threads(threads) if(n >= 500)
    do j = 1, n
      call forward(n_in, n_out, hidden, layers, weights, moments, x(:, j), .true., h, slope, y)
      do o = 1, n_out
        at = (n_in + 1) * hidden + (layers - 1) * (hidden + 1) * hidden
        g = weights(at + (o - 1) * hidden + 1:at + o * hidden) * slope(:, layers)
        do k = layers, 1, -1
          width = merge(n_in, hidden, k == 1)
          at = at - (width + 1) * hidden
          call back(width, hidden, weights(at + 1), g, s)
          if (k > 1) g = s(:hidden) * slope(:, k - 1)
        end do
        jac(:, o, j) = s(:n_in) * moments(2 * n_in + n_out + o) / moments(n_in + 1:2 * n_in)
      end do
    end do
  end subroutine

  ! h(:, k) of the hidden layers k, slope(:, k) if slopes are wanted, and y. moments: input means and spreads, output
  ! means and spreads.
  pure subroutine forward(n_in, n_out, hidden, layers, weights, moments, x, slopes, h, slope, y)
    integer(c_long), intent(in) :: n_in, n_out, hidden, layers
    real(rk), intent(in) :: weights(*), moments(*), x(n_in)
    logical, intent(in) :: slopes
    real(rk), intent(inout) :: h(max(n_in, hidden), 0:layers), slope(hidden, layers), y(n_out)
    integer(c_long) :: k, at, width
    h(:n_in, 0) = (x - moments(:n_in)) / moments(n_in + 1:2 * n_in)
    at = 0
    do k = 1, layers
      width = merge(n_in, hidden, k == 1)
      call layer(width, hidden, weights(at + 1), h(:, k - 1), h(:, k))
      at = at + (width + 1) * hidden
      call gelu(hidden, slopes, h(:, k), slope(:, k))
    end do
    call layer(hidden, n_out, weights(at + 1), h(:, layers), y)
    y = y * moments(2 * n_in + n_out + 1:2 * n_in + 2 * n_out) + moments(2 * n_in + 1:2 * n_in + n_out)
  end subroutine

  pure subroutine layer(width, out, weights, x, y)
    integer(c_long), intent(in) :: width, out
    real(rk), intent(in) :: weights(width, out + 1), x(width)
    real(rk), intent(out) :: y(out)
    integer(c_long) :: o
    do o = 1, out
      y(o) = dot_product(weights(:, o), x)
    end do
    call add_bias(out, weights(1, out + 1), y)
  end subroutine

  pure subroutine add_bias(out, bias, y)
    integer(c_long), intent(in) :: out
    real(rk), intent(in) :: bias(out)
    real(rk), intent(inout) :: y(out)
    y = y + bias
  end subroutine

  pure subroutine back(width, out, weights, g, s)
    integer(c_long), intent(in) :: width, out
    real(rk), intent(in) :: weights(width, out), g(out)
    real(rk), intent(out) :: s(width)
    integer(c_long) :: o
    s = 0
    do o = 1, out
      s = s + weights(:, o) * g(o)
    end do
  end subroutine

  pure subroutine gelu(hidden, slopes, a, slope)
    integer(c_long), intent(in) :: hidden
    logical, intent(in) :: slopes
    real(rk), intent(inout) :: a(hidden), slope(hidden)
    real(rk), parameter :: root_half = 0.70710678118654752440_rk, root_tau = 2.50662827463100050242_rk
    real(rk) :: phi(hidden)
    phi = 0.5_rk * (1 + erf(a * root_half))
    if (slopes) slope = phi + a * exp(-0.5_rk * a * a) / root_tau
    a = a * phi
  end subroutine

  ! y of each column by a call of its own. Returns how many calls failed.
  function one_column_calls(model, n, n_in, n_out, x, y, threads) bind(c, name=CALLS_NAME) result(failed)
    type(c_ptr), value :: model
    integer(c_long), value :: n, n_in, n_out
    integer(c_int), value :: threads
    real(rk), intent(in) :: x(n_in, n)
    real(rk), intent(out) :: y(n_out, n)
    integer(c_long) :: failed, j, bytes
    character(c_char), allocatable, target :: workspace(:)
    bytes = lsem_workspace_bytes(model, 1_c_long, merge(LSEM_WS_PREDICT_F32, LSEM_WS_PREDICT_F64, rk == c_float))
    failed = 0
    !$omp parallel private(workspace) num_threads(threads) if(n >= 500)
    allocate (workspace(bytes))
    !$omp do reduction(+:failed)
    do j = 1, n
      if (lsem_predict(model, 1_c_long, x(:, j:j), n_in, y(:, j:j), n_out, c_loc(workspace)) /= LSEM_OK) &
           failed = failed + 1
    end do
    !$omp end parallel
  end function
end module
