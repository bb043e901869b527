! Fortran interface of liblockstep: the functions of lockstep/lockstep.h under their own names (Fortran 2003,
! iso_c_binding).
!
! Compile this file with the compiler of the program that uses it, and link with -llockstep.
!
! Layout     A state is an array x(n_in, n), a prediction y(n_out, n), a Jacobian J(n_in, n_out, n): no transposition.
!            ldx is the leading extent, size(x, 1). A section is passed as a copy, so its ldx is its own first extent,
!            not that of the array: k for big(2:k+1, :). With one array per variable, call the lsem_*_soa functions
!            with arrays of c_loc(...) addresses.
! Optional   Pass a mask or workspace as c_loc(mask), or c_null_ptr for none.
! GPUs       The lsem_gpu_* functions take addresses in GPU memory: c_loc(x) inside `!$acc host_data use_device(x)`, or
!            transfer(c_devloc(x), c_null_ptr) of a CUDA Fortran array. The strides of x(n_in, n) are n_in and 1.
! Networks   The lsnet_* functions take the addresses of whole arrays: x(length, channels, n), items(slots, n),
!            scores(items, n).
! Precision  The generic names without suffix (lsem_predict, ...) select the precision by the kind: real(c_float) or
!            real(c_double).
! Errors     Every function returns LSEM_OK (0) or an error code; lsem_error_text says what it means,
!            lsem_last_error_text what happened. lsem_abi_version() must equal LSEM_ABI_EXPECTED.
module lockstep
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int), parameter, public :: LSEM_ABI_EXPECTED = 1
  integer(c_int), parameter, public :: LSEM_OK = 0, LSEM_ERR_ARGUMENT = 1, LSEM_ERR_OPEN = 2, LSEM_ERR_FORMAT = 3, &
       LSEM_ERR_DAMAGED = 4, LSEM_ERR_SELFTEST = 5, LSEM_ERR_MEMORY = 6, LSEM_ERR_BUFFER = 7, LSEM_ERR_NOT_FOUND = 8, &
       LSEM_ERR_INTERNAL = 9, LSEM_ERR_GPU = 10, LSEM_ERR_NOT_FINITE = 11
  integer(c_int), parameter, public :: LSEM_WS_PREDICT_F32 = 0, LSEM_WS_PREDICT_F64 = 1, LSEM_WS_JAC_F32 = 2, LSEM_WS_JAC_F64 = 3
  integer(c_int), parameter, public :: LSEM_NET_F64 = 0, LSEM_NET_F32 = 1
  integer(c_int), parameter, public :: LSNET_F32 = 0, LSNET_I64 = 1
  integer, parameter, public :: LSEM_TEXT_LENGTH = 256

  public :: lsem_abi_version, lsem_open, lsem_open_mem, lsem_close, lsem_selftest, lsem_n_in, lsem_n_out, lsem_level
  public :: lsem_get_domain, lsem_set_active, lsem_set_domain, lsem_set_precision, lsem_set_threads, lsem_workspace_bytes
  public :: lsem_predict_f32, lsem_predict_f64, lsem_jac_f32, lsem_jac_f64, lsem_linearize_f32, lsem_linearize_f64
  public :: lsem_tl_f32, lsem_tl_f64, lsem_ad_f32, lsem_ad_f64, lsem_lin_nodes, lsem_lin_bytes, lsem_lin_free
  public :: lsem_predict_soa_f32, lsem_predict_soa_f64, lsem_jac_soa_f32, lsem_jac_soa_f64
  public :: lsem_linearize_soa_f32, lsem_linearize_soa_f64, lsem_tl_soa_f32, lsem_tl_soa_f64, lsem_ad_soa_f32, lsem_ad_soa_f64
  public :: lsem_predict, lsem_jac, lsem_linearize, lsem_tl, lsem_ad
  public :: lsem_name, lsem_cf_name, lsem_units, lsem_mask_name, lsem_meta
  public :: lsem_error_text, lsem_last_error_text
  public :: lsem_gpu_open, lsem_gpu_close, lsem_gpu_predict_f32, lsem_gpu_predict_f64, lsem_gpu_jac_f32, lsem_gpu_jac_f64
  public :: lsem_gpu_tl_f32, lsem_gpu_tl_f64, lsem_gpu_ad_f32, lsem_gpu_ad_f64
  public :: lsnet_open, lsnet_open_mem, lsnet_close, lsnet_meta, lsnet_arrays, lsnet_array_name, lsnet_array_type
  public :: lsnet_array_rank, lsnet_array_extent, lsnet_set, lsnet_workspace_new, lsnet_workspace_free, lsnet_predict

  ! Interfaces that several functions share.
  abstract interface
    ! One array per variable: x(i) = c_loc of the first element of variable i, sx(i) its stride
    integer(c_int) function predict_soa(m, n, x, sx, y, sy, ws) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: m, ws
      integer(c_long), value :: n
      type(c_ptr), intent(in) :: x(*), y(*)
      integer(c_long), intent(in) :: sx(*), sy(*)
    end function

    integer(c_int) function jac_soa(m, n, x, sx, mask, physical, jacobian, sj, ws) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: m, mask, ws
      integer(c_long), value :: n
      integer(c_int), value :: physical
      type(c_ptr), intent(in) :: x(*), jacobian(*)
      integer(c_long), intent(in) :: sx(*), sj(*)
    end function

    integer(c_int) function linearize_soa(m, n, x, sx, mask, lin) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: m, mask
      integer(c_long), value :: n
      type(c_ptr), intent(in) :: x(*)
      integer(c_long), intent(in) :: sx(*)
      type(c_ptr), intent(out) :: lin
    end function

    integer(c_int) function tl_soa(lin, dx, sdx, dy, sdy, accumulate) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: lin
      type(c_ptr), intent(in) :: dx(*), dy(*)
      integer(c_long), intent(in) :: sdx(*), sdy(*)
      integer(c_int), value :: accumulate
    end function

    integer(c_int) function ad_soa(lin, dy, sdy, dx, sdx, accumulate) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: lin
      type(c_ptr), intent(in) :: dy(*), dx(*)
      integer(c_long), intent(in) :: sdy(*), sdx(*)
      integer(c_int), value :: accumulate
    end function

    ! x, y, mask, jacobian, from, to: addresses in GPU memory; stream: a cudaStream_t, or c_null_ptr
    integer(c_int) function gpu_predict(g, n, x, x_node, x_variable, y, y_node, y_variable, stream) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: g, x, y, stream
      integer(c_long), value :: n, x_node, x_variable, y_node, y_variable
    end function

    integer(c_int) function gpu_jac(g, n, x, x_node, x_variable, mask, physical, jacobian, stream) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: g, x, mask, jacobian, stream
      integer(c_long), value :: n, x_node, x_variable
      integer(c_int), value :: physical
    end function

    integer(c_int) function gpu_multiply(g, n, jacobian, from, from_node, from_variable, to, to_node, to_variable, accumulate, &
                                         stream) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: g, jacobian, from, to, stream
      integer(c_long), value :: n, from_node, from_variable, to_node, to_variable
      integer(c_int), value :: accumulate
    end function

    subroutine free_handle(handle) bind(c)
      import :: c_ptr
      type(c_ptr), value :: handle
    end subroutine

    integer(c_int) function number_of_model(m) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: m
    end function

    ! value: a precision, a number of threads; 0 for the inputs and 1 for the outputs of a network
    integer(c_int) function with_number(m, value) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: m
      integer(c_int), value :: value
    end function

    ! i counts from 0, as in C
    integer(c_int) function number_of_array(m, is_output, i) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: m
      integer(c_int), value :: is_output, i
    end function

    integer(c_int) function text_of_array(m, is_output, i, buf, len) bind(c)
      import :: c_int, c_char, c_ptr, c_size_t
      type(c_ptr), value :: m
      integer(c_int), value :: is_output, i
      character(kind=c_char), intent(out) :: buf(*)
      integer(c_size_t), value :: len
    end function

    integer(c_int) function open_file(path, m) bind(c)
      import :: c_int, c_char, c_ptr
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(out) :: m
    end function

    ! buf: c_loc of the first byte
    integer(c_int) function open_bytes(buf, len, m) bind(c)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: buf
      integer(c_size_t), value :: len
      type(c_ptr), intent(out) :: m
    end function

    integer(c_int) function text_of_key(m, key, buf, len) bind(c)
      import :: c_int, c_char, c_ptr, c_size_t
      type(c_ptr), value :: m
      character(kind=c_char), intent(in) :: key(*)
      character(kind=c_char), intent(out) :: buf(*)
      integer(c_size_t), value :: len
    end function
  end interface

  procedure(predict_soa), bind(c) :: lsem_predict_soa_f32, lsem_predict_soa_f64
  procedure(jac_soa), bind(c) :: lsem_jac_soa_f32, lsem_jac_soa_f64
  procedure(linearize_soa), bind(c) :: lsem_linearize_soa_f32, lsem_linearize_soa_f64
  procedure(tl_soa), bind(c) :: lsem_tl_soa_f32, lsem_tl_soa_f64
  procedure(ad_soa), bind(c) :: lsem_ad_soa_f32, lsem_ad_soa_f64
  procedure(gpu_predict), bind(c) :: lsem_gpu_predict_f32, lsem_gpu_predict_f64
  procedure(gpu_jac), bind(c) :: lsem_gpu_jac_f32, lsem_gpu_jac_f64
  procedure(gpu_multiply), bind(c) :: lsem_gpu_tl_f32, lsem_gpu_tl_f64, lsem_gpu_ad_f32, lsem_gpu_ad_f64
  procedure(free_handle), bind(c) :: lsem_gpu_close
  procedure(free_handle), bind(c) :: lsem_close, lsnet_close, lsem_lin_free, lsnet_workspace_free
  procedure(number_of_model), bind(c) :: lsem_selftest, lsem_n_in, lsem_n_out
  procedure(with_number), bind(c) :: lsem_set_precision, lsem_set_threads, lsnet_arrays
  procedure(number_of_array), bind(c) :: lsem_level, lsnet_array_type, lsnet_array_rank
  procedure(text_of_array), bind(c, name="lsem_name") :: lsem_text_of_variable
  procedure(text_of_array), bind(c, name="lsem_cf_name") :: lsem_cf_of_variable
  procedure(text_of_array), bind(c, name="lsem_units") :: lsem_units_of_variable
  procedure(text_of_array), bind(c, name="lsnet_array_name") :: lsnet_array_name_c
  procedure(open_file), bind(c, name="lsem_open") :: lsem_open_c
  procedure(open_file), bind(c, name="lsnet_open") :: lsnet_open_c
  procedure(open_bytes), bind(c) :: lsem_open_mem, lsnet_open_mem
  procedure(text_of_key), bind(c, name="lsem_meta") :: lsem_meta_c
  procedure(text_of_key), bind(c, name="lsnet_meta") :: lsnet_meta_c

  interface
    integer(c_int) function lsem_abi_version() bind(c)
      import :: c_int
    end function

    integer(c_int) function lsem_get_domain(m, lo, hi) bind(c)
      import :: c_int, c_ptr, c_double
      type(c_ptr), value :: m
      real(c_double), intent(out) :: lo, hi
    end function

    ! device: CUDA's number, or -1 for the current GPU
    integer(c_int) function lsem_gpu_open(m, device, g) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: m
      integer(c_int), value :: device
      type(c_ptr), intent(out) :: g
    end function

    ! in_mask: c_loc of n_in integers of kind c_signed_char (0 = inactive), or c_null_ptr
    integer(c_int) function lsem_set_active(m, in_mask) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: m, in_mask
    end function

    integer(c_int) function lsem_set_domain(m, lo, hi) bind(c)
      import :: c_int, c_ptr, c_double
      type(c_ptr), value :: m
      real(c_double), value :: lo, hi
    end function

    integer(c_size_t) function lsem_workspace_bytes(m, n, what) bind(c)
      import :: c_int, c_long, c_ptr, c_size_t
      type(c_ptr), value :: m
      integer(c_long), value :: n
      integer(c_int), value :: what
    end function

    integer(c_int) function lsem_predict_f32(m, n, x, ldx, y, ldy, ws) bind(c)
      import :: c_int, c_long, c_ptr, c_float
      type(c_ptr), value :: m, ws
      integer(c_long), value :: n, ldx, ldy
      real(c_float), intent(in) :: x(ldx, *)
      real(c_float), intent(inout) :: y(ldy, *)
    end function

    ! Pass J(n_in, n_out, n); its extents do not matter here, only that it has three and no gaps
    integer(c_int) function lsem_jac_f32(m, n, x, ldx, mask, physical, jacobian, ws) bind(c)
      import :: c_int, c_long, c_ptr, c_float
      type(c_ptr), value :: m, mask, ws
      integer(c_long), value :: n, ldx
      integer(c_int), value :: physical
      real(c_float), intent(in) :: x(ldx, *)
      real(c_float), intent(inout) :: jacobian(1, 1, *)
    end function

    integer(c_int) function lsem_linearize_f32(m, n, x, ldx, mask, lin) bind(c)
      import :: c_int, c_long, c_ptr, c_float
      type(c_ptr), value :: m, mask
      integer(c_long), value :: n, ldx
      real(c_float), intent(in) :: x(ldx, *)
      type(c_ptr), intent(out) :: lin
    end function

    integer(c_int) function lsem_tl_f32(lin, dx, lddx, dy, lddy, accumulate) bind(c)
      import :: c_int, c_long, c_ptr, c_float
      type(c_ptr), value :: lin
      integer(c_long), value :: lddx, lddy
      real(c_float), intent(in) :: dx(lddx, *)
      real(c_float), intent(inout) :: dy(lddy, *)
      integer(c_int), value :: accumulate
    end function

    integer(c_int) function lsem_ad_f32(lin, dy, lddy, dx, lddx, accumulate) bind(c)
      import :: c_int, c_long, c_ptr, c_float
      type(c_ptr), value :: lin
      integer(c_long), value :: lddy, lddx
      real(c_float), intent(in) :: dy(lddy, *)
      real(c_float), intent(inout) :: dx(lddx, *)
      integer(c_int), value :: accumulate
    end function

    integer(c_int) function lsem_predict_f64(m, n, x, ldx, y, ldy, ws) bind(c)
      import :: c_int, c_long, c_ptr, c_double
      type(c_ptr), value :: m, ws
      integer(c_long), value :: n, ldx, ldy
      real(c_double), intent(in) :: x(ldx, *)
      real(c_double), intent(inout) :: y(ldy, *)
    end function

    ! Pass J(n_in, n_out, n); its extents do not matter here, only that it has three and no gaps
    integer(c_int) function lsem_jac_f64(m, n, x, ldx, mask, physical, jacobian, ws) bind(c)
      import :: c_int, c_long, c_ptr, c_double
      type(c_ptr), value :: m, mask, ws
      integer(c_long), value :: n, ldx
      integer(c_int), value :: physical
      real(c_double), intent(in) :: x(ldx, *)
      real(c_double), intent(inout) :: jacobian(1, 1, *)
    end function

    integer(c_int) function lsem_linearize_f64(m, n, x, ldx, mask, lin) bind(c)
      import :: c_int, c_long, c_ptr, c_double
      type(c_ptr), value :: m, mask
      integer(c_long), value :: n, ldx
      real(c_double), intent(in) :: x(ldx, *)
      type(c_ptr), intent(out) :: lin
    end function

    integer(c_int) function lsem_tl_f64(lin, dx, lddx, dy, lddy, accumulate) bind(c)
      import :: c_int, c_long, c_ptr, c_double
      type(c_ptr), value :: lin
      integer(c_long), value :: lddx, lddy
      real(c_double), intent(in) :: dx(lddx, *)
      real(c_double), intent(inout) :: dy(lddy, *)
      integer(c_int), value :: accumulate
    end function

    integer(c_int) function lsem_ad_f64(lin, dy, lddy, dx, lddx, accumulate) bind(c)
      import :: c_int, c_long, c_ptr, c_double
      type(c_ptr), value :: lin
      integer(c_long), value :: lddy, lddx
      real(c_double), intent(in) :: dy(lddy, *)
      real(c_double), intent(inout) :: dx(lddx, *)
      integer(c_int), value :: accumulate
    end function

    integer(c_long) function lsem_lin_nodes(lin) bind(c)
      import :: c_long, c_ptr
      type(c_ptr), value :: lin
    end function

    integer(c_size_t) function lsem_lin_bytes(lin) bind(c)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: lin
    end function

    integer(c_int) function lsem_mask_name_c(m, buf, len) bind(c, name="lsem_mask_name")
      import :: c_int, c_char, c_ptr, c_size_t
      type(c_ptr), value :: m
      character(kind=c_char), intent(out) :: buf(*)
      integer(c_size_t), value :: len
    end function

    ! Axes are counted in C's order: axis 0 is the batch, the last axis of a Fortran array
    integer(c_long) function lsnet_array_extent(m, is_output, i, axis) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: m
      integer(c_int), value :: is_output, i, axis
    end function

    integer(c_int) function lsnet_set_c(m, setting, value) bind(c, name="lsnet_set")
      import :: c_int, c_char, c_long, c_ptr
      type(c_ptr), value :: m
      character(kind=c_char), intent(in) :: setting(*)
      integer(c_long), value :: value
    end function

    type(c_ptr) function lsnet_workspace_new() bind(c)
      import :: c_ptr
    end function

    ! inputs, outputs: c_loc of the first element of each array, whose last extent is n; ws may be c_null_ptr
    integer(c_int) function lsnet_predict(m, n, inputs, outputs, ws) bind(c)
      import :: c_int, c_long, c_ptr
      type(c_ptr), value :: m, ws
      integer(c_long), value :: n
      type(c_ptr), intent(in) :: inputs(*), outputs(*)
    end function

    type(c_ptr) function lsem_strerror_c(code) bind(c, name="lsem_strerror")
      import :: c_int, c_ptr
      integer(c_int), value :: code
    end function

    type(c_ptr) function lsem_last_error_c() bind(c, name="lsem_last_error")
      import :: c_ptr
    end function
  end interface

  interface lsem_predict
    procedure lsem_predict_f32, lsem_predict_f64
  end interface
  interface lsem_jac
    procedure lsem_jac_f32, lsem_jac_f64
  end interface
  interface lsem_linearize
    procedure lsem_linearize_f32, lsem_linearize_f64
  end interface
  interface lsem_tl
    procedure lsem_tl_f32, lsem_tl_f64
  end interface
  interface lsem_ad
    procedure lsem_ad_f32, lsem_ad_f64
  end interface

contains

  !> Opens a model file; trailing blanks of the path do not count.
  integer(c_int) function lsem_open(path, m) result(status)
    character(len=*), intent(in) :: path
    type(c_ptr), intent(out) :: m
    status = lsem_open_c(trim(path)//c_null_char, m)
  end function

  !> The short name, CF name and units of variable i (from 0) of the inputs (is_output 0) or outputs (1), padded with
  !> blanks.
  integer(c_int) function lsem_name(m, is_output, i, text) result(status)
    type(c_ptr), intent(in) :: m
    integer(c_int), intent(in) :: is_output, i
    character(len=*), intent(out) :: text
    character(kind=c_char) :: buf(LSEM_TEXT_LENGTH)
    status = lsem_text_of_variable(m, is_output, i, buf, int(LSEM_TEXT_LENGTH, c_size_t))
    call copy_buffer(status, buf, text)
  end function

  integer(c_int) function lsem_cf_name(m, is_output, i, text) result(status)
    type(c_ptr), intent(in) :: m
    integer(c_int), intent(in) :: is_output, i
    character(len=*), intent(out) :: text
    character(kind=c_char) :: buf(LSEM_TEXT_LENGTH)
    status = lsem_cf_of_variable(m, is_output, i, buf, int(LSEM_TEXT_LENGTH, c_size_t))
    call copy_buffer(status, buf, text)
  end function

  integer(c_int) function lsem_units(m, is_output, i, text) result(status)
    type(c_ptr), intent(in) :: m
    integer(c_int), intent(in) :: is_output, i
    character(len=*), intent(out) :: text
    character(kind=c_char) :: buf(LSEM_TEXT_LENGTH)
    status = lsem_units_of_variable(m, is_output, i, buf, int(LSEM_TEXT_LENGTH, c_size_t))
    call copy_buffer(status, buf, text)
  end function

  !> The variable of the domain mask.
  integer(c_int) function lsem_mask_name(m, text) result(status)
    type(c_ptr), intent(in) :: m
    character(len=*), intent(out) :: text
    character(kind=c_char) :: buf(LSEM_TEXT_LENGTH)
    status = lsem_mask_name_c(m, buf, int(LSEM_TEXT_LENGTH, c_size_t))
    call copy_buffer(status, buf, text)
  end function

  !> The entry of the model file for a key.
  integer(c_int) function lsem_meta(m, key, text) result(status)
    type(c_ptr), intent(in) :: m
    character(len=*), intent(in) :: key
    character(len=*), intent(out) :: text
    character(kind=c_char) :: buf(LSEM_TEXT_LENGTH)
    status = lsem_meta_c(m, trim(key)//c_null_char, buf, int(LSEM_TEXT_LENGTH, c_size_t))
    call copy_buffer(status, buf, text)
  end function

  !> Opens a network that is not an emulator.
  integer(c_int) function lsnet_open(path, m) result(status)
    character(len=*), intent(in) :: path
    type(c_ptr), intent(out) :: m
    status = lsnet_open_c(trim(path)//c_null_char, m)
  end function

  !> Sets a number that the file does not hold.
  integer(c_int) function lsnet_set(m, setting, value) result(status)
    type(c_ptr), intent(in) :: m
    character(len=*), intent(in) :: setting
    integer(c_long), intent(in) :: value
    status = lsnet_set_c(m, trim(setting)//c_null_char, value)
  end function

  !> The name of input (is_output 0) or output (1) i, from 0, padded with blanks.
  integer(c_int) function lsnet_array_name(m, is_output, i, text) result(status)
    type(c_ptr), intent(in) :: m
    integer(c_int), intent(in) :: is_output, i
    character(len=*), intent(out) :: text
    character(kind=c_char) :: buf(LSEM_TEXT_LENGTH)
    status = lsnet_array_name_c(m, is_output, i, buf, int(LSEM_TEXT_LENGTH, c_size_t))
    call copy_buffer(status, buf, text)
  end function

  !> The entry of the model file for a key.
  integer(c_int) function lsnet_meta(m, key, text) result(status)
    type(c_ptr), intent(in) :: m
    character(len=*), intent(in) :: key
    character(len=*), intent(out) :: text
    character(kind=c_char) :: buf(LSEM_TEXT_LENGTH)
    status = lsnet_meta_c(m, trim(key)//c_null_char, buf, int(LSEM_TEXT_LENGTH, c_size_t))
    call copy_buffer(status, buf, text)
  end function

  !> A description of an error code.
  function lsem_error_text(code) result(text)
    integer(c_int), intent(in) :: code
    character(len=LSEM_TEXT_LENGTH) :: text
    character(len=4*LSEM_TEXT_LENGTH) :: whole
    whole = text_at(lsem_strerror_c(code))
    text = whole(:LSEM_TEXT_LENGTH)
  end function

  !> The message of this thread's last failed call.
  function lsem_last_error_text() result(text)
    character(len=4*LSEM_TEXT_LENGTH) :: text
    text = text_at(lsem_last_error_c())
  end function

  subroutine copy_buffer(status, buf, text)
    integer(c_int), intent(in) :: status
    character(kind=c_char), intent(in) :: buf(:)
    character(len=*), intent(out) :: text
    integer :: i
    text = ''
    if (status /= LSEM_OK .and. status /= LSEM_ERR_BUFFER) return
    do i = 1, min(size(buf), len(text))
      if (buf(i) == c_null_char) exit
      text(i:i) = buf(i)
    end do
  end subroutine

  function text_at(address) result(text)
    type(c_ptr), intent(in) :: address
    character(len=4*LSEM_TEXT_LENGTH) :: text
    character(kind=c_char), pointer :: chars(:)
    integer :: i
    call c_f_pointer(address, chars, [len(text)])
    text = ''
    do i = 1, len(text)
      if (chars(i) == c_null_char) exit
      text(i:i) = chars(i)
    end do
  end function
end module lockstep
