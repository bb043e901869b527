#pragma once
#include "lockstep/prep/har/har_set.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep::prep {

/// Warns of classes that only case, blanks or punctuation tell apart, and of names that mean a missing label.
void look_at_classes(const HarSet& set, Summary& summary);
/// Warns of values that channel_units cannot have, such as the counts of a converter as g.
void look_at_units(const HarSet& set, Summary& summary);
/// Warns of subjects and recordings whose values are those of the others times a factor that two units differ by: g and
/// m/s2, mg and g, degrees and radians per second.
///
/// The magnitude of a sensor is the mean length of its vector x, y, z, compared between windows of one class. Without
/// such a sensor each channel counts alone. One class suffices where the others agree closely, as accelerations with
/// gravity do; otherwise all classes of a subject, at least two, must have the factor.
void compare_scales(const HarSet& set, Summary& summary);

}  // namespace lockstep::prep
