#pragma once
#include "lockstep/comm/world.hpp"

/// The world of a test that runs under mpirun: made before the first test case, and the same for all.
lockstep::World& test_world();
