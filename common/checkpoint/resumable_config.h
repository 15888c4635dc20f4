// Decides which settings may change when a run is resumed. All functions are pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

// Returns a resolved config in which everything that depends on the number of workers is spelled
// out: run.global_batch in place of batch_per_worker, and the scaled learning rate. It has the same
// meaning for any number of workers.
config::Config FrozenConfig(const config::Config& config);
std::string FrozenConfigText(const config::Config& config);

// Parses the output of FrozenConfigText as saved in a checkpoint. Throws Error(kData).
config::Config ParseKeptConfig(const std::string& text);

// `kept` is the text in the checkpoint, `now` the resolved config of the resumed run. Throws
// Error(kUsage) with the first setting that has changed but must not. Returns a line for each
// changed setting that is allowed but may change the bits.
std::vector<std::string> CheckResumable(const std::string& kept, const config::Config& now);

// Every setting that is there, by its path, such as "model.layer[0].dense.units"; as in protobuf's
// text form. A message that is there has the value "{}".
std::map<std::string, std::string> FlatSettings(const config::Config& config);

// Whether the learning rate of a step depends on the length of the run (total_samples).
bool RateFollowsLength(const config::LearningRate& rate);

}  // namespace muster
