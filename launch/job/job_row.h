// The rows of a job's header and summary: a label and what there is to say.
#pragma once

#include <string>
#include <vector>

namespace muster {

// "  label          text", of any length.
std::string Row(const std::string& label, const std::string& text);

// Makes every line fit a terminal, but the first one, which is a title and may be a path.
void Fit(std::vector<std::string>& lines);

}  // namespace muster
