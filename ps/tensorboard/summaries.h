// What TensorBoard shows: the kinds of values, a network, and the settings in its table of runs.
#pragma once

#include <string>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// Each adds one to `summary`. A tag is "group/name".
void AddScalar(tensorboard::Summary& summary, const std::string& tag, double value);
// Markdown.
void AddText(tensorboard::Summary& summary, const std::string& tag, const std::string& text);
// What the plugin of this name reads.
void AddPluginData(tensorboard::Summary& summary, const std::string& tag, const std::string& plugin,
                   const std::string& content);

// How the tab "Custom Scalars" combines curves in charts.
void AddLayout(tensorboard::Summary& summary, const tensorboard::Layout& layout);

// Text as it is, in a box of Markdown.
std::string AsCode(const std::string& text);

// A node for the image, one for each layer, and one for each variable, inside its layer.
tensorboard::GraphDef GraphDefOf(const Graph& graph);

// Takes optimizer, learning rate, evaluation, preprocessing, and the numbers of the run and of its
// workers from a resolved config. Names are the settings'.
tensorboard::HparamsPluginData HparamsOf(const config::Config& config, const std::string& group,
                                         double unix_time);

tensorboard::HparamsPluginData HparamsEnd(bool completed, double unix_time);

inline constexpr const char* kHparamsPlugin = "hparams";
inline constexpr const char* kHparamsStartTag = "_hparams_/session_start_info";
inline constexpr const char* kHparamsEndTag = "_hparams_/session_end_info";

}  // namespace muster
