// The kinds of values that TensorBoard shows.
#pragma once

#include <string>

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

}  // namespace muster
