#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

/// The values of the progress line. Negative values are omitted.
struct ProgressState {
  std::int64_t step = 0, steps = 0;  ///< steps 0: unknown, no bar
  std::string unit = "step";         ///< what is counted
  double epoch = -1, epochs = -1;
  double loss = -1, validation = -1;
  double samples_per_s = 0;
  double seconds_left = -1;
};

/// `━━━━━━╸─────  42% step 2520/6000 epoch 25/60 loss 0.0123 val 0.0143 84.2k/s 32s left`, shorter than `columns`. The
/// bar fills the remaining width; if the line is too long, the least important values are omitted.
std::string progress_line(const ProgressState& state, int columns, bool utf8);
/// 84210 -> "84.2k".
std::string short_rate(double per_second);
/// The width of the terminal of standard error, else the variable COLUMNS, else 100.
int terminal_columns();

}  // namespace lockstep
