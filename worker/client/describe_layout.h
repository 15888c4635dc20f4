// What a worker says of its variables when it joins.
#pragma once

#include "common/graph/variable_layout.h"
#include "proto/wire.pb.h"

namespace muster {

// The hash decides whether a worker fits; names, shapes and lines let the server say what differs.
void DescribeLayout(const VariableLayout& layout, wire::Hello& hello);

// Takes away what only names a difference, until the Hello fits into a message. Last.
void TrimHello(wire::Hello& hello);

}  // namespace muster
