// What to say to somebody who gave another directory where that of a run was expected: a series', a
// folder of runs, or one inside a run.
#pragma once

#include <string>

namespace muster {

// To whoever wants a run's weights. "" where `path` is none of these.
std::string HintForWeights(const std::string& path);

// To whoever gave it where a file of weights is needed.
std::string HintForFile(const std::string& path);

// To whoever wants a run to go on; also of a checkpoint.
std::string HintForResume(const std::string& path);

}  // namespace muster
