#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

/// What the progress line shows; negative or NaN parts are left out.
struct ProgressState {
  std::int64_t step = 0, steps = 0;  ///< steps 0: the end is unknown, no bar
  double epoch = -1, epochs = -1;
  double loss = -1, validation = -1;
  double samples_per_s = 0;
  double seconds_left = -1;
};

/// `━━━━━━╸─────  42% step 2520/6000 epoch 25/60 loss 0.0123 val 0.0143 84.2k/s 32s left`, at most `columns` wide: the bar takes what is
/// left, the last parts are dropped when even that is too little.
std::string progress_line(const ProgressState& state, int columns, bool utf8);
/// 84210 -> "84.2k".
std::string short_rate(double per_second);
/// Of the terminal behind standard error, COLUMNS, or 100.
int terminal_columns();

}  // namespace lockstep
