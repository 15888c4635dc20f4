// TensorBoard values, the graph of a network, and the settings for the hparams table.
#pragma once

#include <string>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// Each function adds one value to `summary`. A tag is "group/name".
void AddScalar(tensorboard::Summary& summary, const std::string& tag, double value);
// `text`: Markdown.
void AddText(tensorboard::Summary& summary, const std::string& tag, const std::string& text);
// Adds data for this plugin.
void AddPluginData(tensorboard::Summary& summary, const std::string& tag, const std::string& plugin,
                   const std::string& content);

// Adds the charts of the "Custom Scalars" tab.
void AddLayout(tensorboard::Summary& summary, const tensorboard::Layout& layout);

// Formats text as a Markdown code block.
std::string AsCode(const std::string& text);

// One node for the image, one per layer, and one per variable inside its layer.
tensorboard::GraphDef GraphDefOf(const Graph& graph);

// The model name and the scalar settings for optimizer, learning rate, preprocessing, run and
// wire_dtype, from a resolved config. Names are the settings' paths.
tensorboard::HparamsPluginData HparamsOf(const config::Config& config, const std::string& group,
                                         double unix_time);

tensorboard::HparamsPluginData HparamsEnd(bool completed, double unix_time);

inline constexpr const char* kHparamsPlugin = "hparams";
inline constexpr const char* kHparamsStartTag = "_hparams_/session_start_info";
inline constexpr const char* kHparamsEndTag = "_hparams_/session_end_info";

}  // namespace muster
