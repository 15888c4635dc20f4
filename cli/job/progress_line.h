// The words of the lines that a running job prints. Pure functions.
#pragma once

#include <string>

#include "proto/events.pb.h"

namespace muster {

// step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  1,200 images/s  5 min 00 s left
//   waiting 2 %
// in one line of at most `width` characters: what matters least is left out first. What is not
// known is left out always.
std::string ProgressLine(const events::Progress& progress, int width);

// The same for a permanent line: columns of fixed width, nothing left out.
std::string IntervalLine(const events::Progress& progress);

// epoch 1.00  step 391  test accuracy 55.12 %  test loss 1.2842
std::string EvaluationLine(const events::Evaluation& evaluation);

// "Lost rank 1 (pid 42) at step 120: its connection ended; others compute 4 slices; 1 worker now"
std::string ChangeLine(const events::MemberChange& change);

// Cuts to `width` characters, the last two being ".." where something was cut.
std::string FitTo(const std::string& text, int width);

}  // namespace muster
