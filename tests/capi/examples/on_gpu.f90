! How a Fortran program with OpenACC uses a trained emulator on states that stay on the GPU: the Jacobian once, then
! tangent linear and adjoint. Compiled without OpenACC, or where there is no GPU, it computes on the CPU.
!
!   on_gpu_f MODEL.lsem
program on_gpu
  use, intrinsic :: iso_c_binding
  use lockstep
  implicit none
  integer(c_long), parameter :: n = 1000
  type(c_ptr) :: model, gpu, lin
  integer(c_long) :: n_in, n_out, j
  integer(c_int) :: i
  character(len=1024) :: path
  real(c_double), allocatable, target :: x(:,:), dx(:,:), y(:,:), dy(:,:), kdx(:,:), ktdy(:,:), jacobian(:,:,:)
  real(c_double) :: left, right
  logical :: offload

  if (command_argument_count() /= 1) then
    print '(a)', 'usage: on_gpu_f MODEL.lsem'
    stop 2
  end if
  call get_command_argument(1, path)
  call check(lsem_open(path, model))
  n_in = lsem_n_in(model)
  n_out = lsem_n_out(model)
  offload = .false.
#ifdef _OPENACC
  offload = lsem_gpu_open(model, -1_c_int, gpu) == LSEM_OK
  if (.not. offload) print '(2a)', 'on the CPU: ', trim(lsem_last_error_text())
#else
  print '(a)', 'on the CPU: compiled without OpenACC'
#endif

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

  if (offload) then
    call on_device(x, dx, dy, y, kdx, ktdy, jacobian)
    call lsem_gpu_close(gpu)
  else
    call check(lsem_predict(model, n, x, n_in, y, n_out, c_null_ptr))
    call check(lsem_linearize(model, n, x, n_in, c_null_ptr, lin))
    call check(lsem_tl(lin, dx, n_in, kdx, n_out, 0_c_int))
    call check(lsem_ad(lin, dy, n_out, ktdy, n_in, 0_c_int))
    call lsem_lin_free(lin)
  end if

  left = sum(kdx * dy)
  right = sum(dx * ktdy)
  print '(a, es23.15, a, es23.15)', '<K dx, dy> =', left, '   <dx, K'' dy> =', right
  if (.not. abs(left - right) <= 1d-12 * sum(abs(kdx * dy))) &
       error stop 'the adjoint is not the transpose of the tangent linear'
  call lsem_close(model)

contains
  ! Explicit shapes: compilers differ in which allocatable arrays they accept in use_device.
  subroutine on_device(x, dx, dy, y, kdx, ktdy, jacobian)
    real(c_double), intent(in), target :: x(n_in, n), dx(n_in, n), dy(n_out, n)
    real(c_double), intent(out), target :: y(n_out, n), kdx(n_out, n), ktdy(n_in, n), jacobian(n_in, n_out, n)
    integer(c_long), parameter :: one = 1

    !$acc data copyin(x, dx, dy) create(jacobian) copyout(y, kdx, ktdy)
    !$acc host_data use_device(x, dx, dy, y, kdx, ktdy, jacobian)
    call check(lsem_gpu_predict_f64(gpu, n, c_loc(x), n_in, one, c_loc(y), n_out, one, c_null_ptr))
    call check(lsem_gpu_jac_f64(gpu, n, c_loc(x), n_in, one, c_null_ptr, 1_c_int, c_loc(jacobian), c_null_ptr))
    call check(lsem_gpu_tl_f64(gpu, n, c_loc(jacobian), c_loc(dx), n_in, one, c_loc(kdx), n_out, one, 0_c_int, c_null_ptr))
    call check(lsem_gpu_ad_f64(gpu, n, c_loc(jacobian), c_loc(dy), n_out, one, c_loc(ktdy), n_in, one, 0_c_int, c_null_ptr))
    !$acc end host_data
    !$acc end data
  end subroutine

  subroutine check(code)
    integer(c_int), intent(in) :: code
    if (code == LSEM_OK) return
    print '(3a)', trim(lsem_error_text(code)), ': ', trim(lsem_last_error_text())
    stop 1
  end subroutine
end program on_gpu
