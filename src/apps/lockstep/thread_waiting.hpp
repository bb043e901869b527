#pragma once

namespace lockstep::apps {

/// Makes waiting OpenMP threads sleep after some microseconds instead of some milliseconds, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT
/// says otherwise. Call it first thing in main(): OpenMP's run-time library reads its environment before main(), so the
/// program starts itself again (same process, same arguments) with the two variables set.
///
/// By default GCC's threads spin for milliseconds at every barrier. On cores of their own that costs nothing; with one busy
/// neighbour on the node a training step of 200 us then waits for whole time slices: 30 to 60 times slower, against at most
/// the neighbour's share when they sleep. The short spin still covers the gap between the steps of an undisturbed run.
void limit_spinning(char** argv);

}  // namespace lockstep::apps
