// The result of `muster eval` as one HTML page, which needs no other file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/data/show_command.h"
#include "cli/evaluate/eval_text.h"
#include "common/graph/probabilities.h"

namespace muster {

struct Interval {
  double low = 0, high = 1;
};
// Wilson's interval of a share, which contains the true one with a probability of 95 %. `of` is not
// 0.
Interval WilsonInterval(int64_t part, int64_t of);

struct EvaluationPage {
  const EvaluationReport& report;
  std::string command;       // makes this page again
  std::string weights_hash;  // of the weights
  // The network was surest of these. `pictures` are their images, or empty.
  std::vector<SureMistake> mistakes;
  std::vector<Thumbnail> pictures;
  std::string curves;  // of the run, as SVG; or ""
};

inline constexpr const char* kHtmlBeginning = "<!doctype html>\n<html lang=\"en\">";

// Names may have any bytes. The same result gives the same page.
std::string EvaluationHtml(const EvaluationPage& page);

}  // namespace muster
