#pragma once

namespace lockstep::apps {

/// Makes waiting OpenMP threads sleep after microseconds instead of milliseconds, unless OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT is set. Call it first in main(): OpenMP's run-time library reads its environment before main(), so
/// the program executes itself again (same process, same arguments) with the two variables set.
///
/// By default GCC's threads spin for milliseconds at every barrier. That is free on dedicated cores. With one other
/// busy process on the node, a training step of 200 us waits for whole time slices and becomes 30 to 60 times slower;
/// with sleeping threads it only loses the share of that process. The short spin still covers the gap between the steps
/// of an undisturbed run.
void limit_spinning(char** argv);

}  // namespace lockstep::apps
