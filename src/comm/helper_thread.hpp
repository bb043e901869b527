#pragma once
#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace lockstep {

/// A thread that no signal is delivered to: signals are for the thread that trains, whose handler sets the flag that stops the run.
template <class Body>
std::thread helper_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace lockstep
