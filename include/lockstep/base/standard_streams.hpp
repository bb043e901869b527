#pragma once

namespace lockstep {

/// Puts /dev/null in place of standard streams that the caller has closed. Otherwise a file of the program would get
/// their numbers, and with it all messages. Call it first in main().
void open_standard_streams();

/// Ends the standard output. Returns the program's exit code: `code`, or 1 after a message if that is 0 but a part of the
/// output was not written.
int end_standard_output(int code);

}  // namespace lockstep
