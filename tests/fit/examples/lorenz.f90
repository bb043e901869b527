! A model that learns while it runs: Lorenz 96, dx_k/dt = (x_k+1 - x_k-2) x_k-1 - x_k + F, on a ring of points that are
! divided over the ranks. Each point is a column: its neighbours are the inputs, its tendency is the output. After the
! training the network gives the tendency. A restart file holds the state of the model and that of the session. Each step
! also trains on columns of past steps.
!
!   mpirun -n 4 lorenz_f 300 restart.bin      300 steps, then writes the file
!   mpirun -n 2 lorenz_f 300 restart.bin      continues from it on other ranks
program lorenz
  use mpi
  use, intrinsic :: iso_c_binding
  use lockstep_train
  implicit none
  integer, parameter :: points = 240
  real(c_double), parameter :: force = 8, dt = 0.005d0
  integer :: rank, ranks, ierr, first, last, step, steps, unit, k
  integer(c_long) :: n
  integer(c_size_t) :: bytes
  real(c_double) :: x(-1:points + 1), loss, error
  real(c_double), allocatable :: inputs(:,:), tendency(:,:), learned(:,:)
  integer(c_long), allocatable, target :: numbers(:)  ! of the columns of this rank
  character(kind=c_char), allocatable, target :: state(:)
  character(len=256) :: word, file
  type(c_ptr) :: session, model
  logical :: restarts

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, word)
  read (word, *) steps
  call get_command_argument(2, file)
  first = points * rank / ranks + 1
  last = points * (rank + 1) / ranks
  n = last - first + 1
  allocate (inputs(4, n), tendency(1, n), learned(1, n))
  numbers = [(int(k, c_long), k = first, last)]

  call check(lsfit_open_fortran(MPI_COMM_WORLD, 'run.reproducible = true' // new_line('a') // 'optim.lr = 2e-3' &
       // new_line('a') // 'optim.weight_decay = 0' // new_line('a') // 'model.hidden_size = 32' // new_line('a') // &
       'reservoir.columns = 1000' // new_line('a') // 'reservoir.batch = 60', 4, 1, &
       'x_m2,x_m1,x,x_p1,tendency', '', session))
  inquire (file=file, exist=restarts)
  if (restarts) then
    open (newunit=unit, file=file, form='unformatted', access='stream', action='read')
    read (unit) x(1:points), bytes
    allocate (state(bytes))
    read (unit) state
    close (unit)
    call check(lsfit_state_set(session, c_loc(state), bytes))
  else
    x(1:points) = [(force + sin(0.7d0 * k * k), k = 1, points)]
    do step = 1, 1000  ! until the columns are as they will be, because the first ones determine the normalisation
      call exact()
      call advance(tendency)
    end do
  end if

  do step = 1, steps
    call exact()
    call check(lsfit_observe(session, n, inputs, 4_c_long, tendency, 1_c_long, c_null_ptr, c_loc(numbers)))
    call check(lsfit_step(session, loss))
    call advance(tendency)
    if (rank == 0 .and. mod(step, 100) == 0) print '(a, i0, a, es9.2)', 'step ', lsfit_steps(session), ': loss ', loss
  end do

  ! The network instead of the equation.
  call exact()
  call check(lsfit_model(session, model))
  call check(lsem_predict(model, n, inputs, 4_c_long, learned, 1_c_long, c_null_ptr))
  error = sum((learned - tendency)**2) / sum(tendency**2)
  call MPI_Allreduce(MPI_IN_PLACE, error, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a, es9.2)', 'relative squared error of the learned tendency, at most ', error

  call check(lsfit_state_size(session, bytes))
  if (allocated(state)) deallocate (state)
  allocate (state(bytes))
  call check(lsfit_state_get(session, c_loc(state), bytes))
  if (rank == 0) then
    open (newunit=unit, file=file, form='unformatted', access='stream', action='write', status='replace')
    write (unit) x(1:points), bytes, state
    close (unit)
  end if
  call check(lsfit_save(session, trim(file) // '.h5'))
  call check(lsfit_close(session))
  call MPI_Finalize(ierr)
  if (error > 0.05d0) error stop 'the network has not learned the tendency'

contains

  !> The columns of this rank and their tendency.
  subroutine exact()
    x(-1:0) = x(points - 1:points)
    x(points + 1) = x(1)
    do k = first, last
      inputs(:, k - first + 1) = x(k - 2:k + 1)
      tendency(1, k - first + 1) = (x(k + 1) - x(k - 2)) * x(k - 1) - x(k) + force
    end do
  end subroutine

  !> One step of the model; then all ranks know all points.
  subroutine advance(slope)
    real(c_double), intent(in) :: slope(:,:)
    integer :: counts(ranks), starts(ranks), r
    real(c_double) :: mine(n)
    mine = x(first:last) + dt * slope(1, :)
    starts = [(points * r / ranks, r = 0, ranks - 1)]
    counts = [(points * (r + 1) / ranks - points * r / ranks, r = 0, ranks - 1)]
    call MPI_Allgatherv(mine, int(n), MPI_DOUBLE_PRECISION, x(1), counts, starts, MPI_DOUBLE_PRECISION, &
         MPI_COMM_WORLD, ierr)
  end subroutine

  subroutine check(code)
    integer(c_int), intent(in) :: code
    if (code == LSEM_OK) return
    print '(2a)', 'lorenz: ', trim(lsfit_error_text(session))
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine
end program lorenz
