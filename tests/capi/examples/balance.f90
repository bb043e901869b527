! How a Fortran program uses a trained emulator: x(n_in, n) goes in as it is; linearise once, then tangent linear and adjoint.
!
!   balance_f MODEL.lsem
program balance
  use, intrinsic :: iso_c_binding
  use lockstep
  implicit none
  integer(c_long), parameter :: n = 1000
  type(c_ptr) :: model, lin
  integer(c_long) :: n_in, n_out, j
  integer(c_int) :: i
  character(len=1024) :: path
  character(len=32) :: name
  real(c_double), allocatable :: dx(:,:), dy(:,:), kdx(:,:), ktdy(:,:), jacobian(:,:,:)
  real(c_double), allocatable, target :: x(:,:), y(:,:), xt(:,:), yt(:,:)
  type(c_ptr), allocatable :: px(:), py(:)
  integer(c_long), allocatable :: sx(:), sy(:)
  real(c_double) :: left, right

  if (command_argument_count() /= 1) then
    print '(a)', 'usage: balance_f MODEL.lsem'
    stop 2
  end if
  call get_command_argument(1, path)
  if (lsem_abi_version() /= LSEM_ABI_EXPECTED) error stop 'liblockstep has another interface than its module'
  call check(lsem_open(path, model))
  n_in = lsem_n_in(model)
  n_out = lsem_n_out(model)
  do i = 0, int(n_in) - 1
    call check(lsem_name(model, 0_c_int, i, name))
    print '(a, i0, 2a)', 'input ', i, ': ', trim(name)
  end do

  allocate (x(n_in, n), dx(n_in, n), ktdy(n_in, n), y(n_out, n), dy(n_out, n), kdx(n_out, n), jacobian(n_in, n_out, n))
  do j = 1, n
    do i = 1, int(n_in)
      x(i, j) = sin(0.37d0 * real(i + j * n_in, c_double))
      dx(i, j) = cos(0.61d0 * real(i + j * n_in, c_double))
    end do
    do i = 1, int(n_out)
      dy(i, j) = cos(1.7d0 * real(i + j * n_out, c_double))
    end do
  end do

  ! The generic names choose double precision here.
  call check(lsem_predict(model, n, x, n_in, y, n_out, c_null_ptr))
  call check(lsem_jac(model, n, x, n_in, c_null_ptr, 1_c_int, jacobian, c_null_ptr))
  call check(lsem_linearize(model, n, x, n_in, c_null_ptr, lin))
  call check(lsem_tl(lin, dx, n_in, kdx, n_out, 0_c_int))
  call check(lsem_ad(lin, dy, n_out, ktdy, n_in, 0_c_int))

  ! K dx of a node in the middle, by hand: the Jacobian is J(input, output, node).
  if (any(abs(matmul(dx(:, 500), jacobian(:, :, 500)) - kdx(:, 500)) > 1d-12 * maxval(abs(kdx)))) &
       error stop 'the tangent linear is not the Jacobian times dx'
  left = sum(kdx * dy)
  right = sum(dx * ktdy)
  print '(a, es23.15, a, es23.15)', '<K dx, dy> =', left, '   <dx, K'' dy> =', right
  if (abs(left - right) > 1d-12 * sum(abs(kdx * dy))) &
       error stop 'the adjoint is not the transpose of the tangent linear'

  ! A state with the nodes first, x(n, n_in): one address per variable, stride 1.
  allocate (xt(n, n_in), yt(n, n_out), px(n_in), py(n_out), sx(n_in), sy(n_out))
  xt = transpose(x)
  do i = 1, int(n_in)
    px(i) = c_loc(xt(1, i))
  end do
  do i = 1, int(n_out)
    py(i) = c_loc(yt(1, i))
  end do
  sx = 1
  sy = 1
  call check(lsem_predict_soa_f64(model, n, px, sx, py, sy, c_null_ptr))
  if (maxval(abs(transpose(yt) - y)) > 0) error stop 'the two layouts give different predictions'

  call lsem_lin_free(lin)
  call lsem_close(model)
  if (lsem_open('/nonexistent', model) /= LSEM_ERR_OPEN) error stop 'a missing file was opened'
  print '(2a)', 'a missing file: ', trim(lsem_error_text(LSEM_ERR_OPEN))

contains
  subroutine check(status)
    integer(c_int), intent(in) :: status
    if (status == LSEM_OK) return
    print '(3a)', trim(lsem_error_text(status)), ': ', trim(lsem_last_error_text())
    stop 1
  end subroutine
end program balance
