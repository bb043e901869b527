#pragma once
#include "lockstep/comm/world.hpp"

/// The world of a test program that runs under mpirun, shared by all test cases.
lockstep::World& test_world();
