! How a Fortran program uses a trained network of another kind than an emulator: arrays go in and out as they are, the samples last.
!
!   scores_f MODEL.safetensors OUTPUT INPUT...
!
! Each INPUT is a file with the elements of one input, for as many samples as it holds; OUTPUT gets those of the first output.
program scores_of_samples
  use, intrinsic :: iso_c_binding
  use lockstep
  implicit none
  type(c_ptr) :: model
  type(c_ptr) :: inputs(4), outputs(1)
  real(c_float), target, allocatable :: signals(:,:,:), scores(:,:)
  integer(c_int64_t), target, allocatable :: items(:,:), others(:,:)
  character(len=1024) :: path
  character(len=32) :: kind
  integer(c_long) :: n, length, slots
  integer, parameter :: unit = 10

  if (command_argument_count() < 3) error stop 'usage: scores_f MODEL.safetensors OUTPUT INPUT...'
  call get_command_argument(1, path)
  call check(lsnet_open(path, model))
  call check(lsnet_meta(model, 'kind', kind))
  inputs = c_null_ptr

  if (kind == 'har') then
    length = lsnet_array_extent(model, 0_c_int, 0_c_int, 2_c_int)
    n = samples(3, 4 * length * lsnet_array_extent(model, 0_c_int, 0_c_int, 1_c_int))
    allocate (signals(length, lsnet_array_extent(model, 0_c_int, 0_c_int, 1_c_int), n))
    read (unit) signals
    close (unit)
    inputs(1) = c_loc(signals(1, 1, 1))
  else
    slots = max(1_c_long, lsnet_array_extent(model, 0_c_int, 0_c_int, 1_c_int))   ! one for the users of bprmf
    n = samples(3, 8 * slots)
    allocate (items(slots, n))
    read (unit) items
    close (unit)
    inputs(1) = c_loc(items(1, 1))
    if (lsnet_arrays(model, 0_c_int) == 2) then
      slots = lsnet_array_extent(model, 0_c_int, 1_c_int, 1_c_int)
      if (samples(4, 8 * slots) /= n) error stop 'not as many samples in both inputs'
      allocate (others(slots, n))
      read (unit) others
      close (unit)
      inputs(2) = c_loc(others(1, 1))
    end if
  end if

  allocate (scores(lsnet_array_extent(model, 1_c_int, 0_c_int, 1_c_int), n))
  outputs(1) = c_loc(scores(1, 1))
  call check(lsnet_predict(model, n, inputs, outputs, c_null_ptr))
  print '(2a, i0, a, i0)', trim(kind), ': ', n, ' samples; the best score of the first has number ', maxloc(scores(:, 1))
  call get_command_argument(2, path)
  open (unit=unit, file=trim(path), access='stream', form='unformatted', status='replace')
  write (unit) scores
  close (unit)
  call lsnet_close(model)

contains
  !> Opens the file that the command line names at `at`; the number of samples in it.
  function samples(at, bytes_of_sample) result(count)
    integer, intent(in) :: at
    integer(c_long), intent(in) :: bytes_of_sample
    integer(c_long) :: count
    call get_command_argument(at, path)
    open (unit=unit, file=trim(path), access='stream', form='unformatted', status='old')
    inquire (unit=unit, size=count)
    count = count / bytes_of_sample
  end function

  subroutine check(status)
    integer(c_int), intent(in) :: status
    if (status == LSEM_OK) return
    print '(3a)', trim(lsem_error_text(status)), ': ', trim(lsem_last_error_text())
    stop 1
  end subroutine
end program scores_of_samples
