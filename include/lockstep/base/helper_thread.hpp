#pragma once
#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace lockstep {

/// Starts a thread that receives no signals. Signals go to the training thread, whose handler sets the flag that stops
/// the run. Declare it as the last member of a class: its destructor stops and joins the thread before any other member
/// is destroyed.
template <class Body>
std::jthread helper_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::jthread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace lockstep
