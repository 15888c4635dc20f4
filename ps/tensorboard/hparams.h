// What a run was given, for TensorBoard's table of runs.
#pragma once

#include <string>

#include "proto/config_fwd.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// Of a resolved config: optimizer, learning rate, evaluation, preprocessing, and the numbers of
// the run and of its workers. Names are the settings'.
tensorboard::HparamsPluginData HparamsOf(const config::Config& config, const std::string& group,
                                         double unix_time);

tensorboard::HparamsPluginData HparamsEnd(bool completed, double unix_time);

inline constexpr const char* kHparamsPlugin = "hparams";
inline constexpr const char* kHparamsStartTag = "_hparams_/session_start_info";
inline constexpr const char* kHparamsEndTag = "_hparams_/session_end_info";

}  // namespace muster
