#pragma once
// lockstep predict, one function per kind of model: what goes in and comes out differs from kind to kind.
#include "apps/lockstep/commands.hpp"

namespace lockstep::apps {

/// States in physical units to outputs in physical units, HDF5 to HDF5.
int predict_emulator(World& world, const Args& args);
/// Puzzles of a text file, one per line, to solved grids.
int predict_hrm(World& world, const Args& args);
/// The items that a graph or a factorisation ranks first for users, as text.
int predict_items(World& world, const Args& args);
/// The next items of users, as text.
int predict_sequence(World& world, const Args& args);

}  // namespace lockstep::apps
