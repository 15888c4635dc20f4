// The variables of a program that trains its own model, as Hello describes them.
#pragma once

#include "common/graph/variable_layout.h"
#include "proto/wire.pb.h"

namespace muster {

// Lays out the variables in the given order, each as a layer of its own. Throws Error(kUsage) that
// names the variable and what is wrong with it.
VariableLayout LayOutVariables(
    const google::protobuf::RepeatedPtrField<wire::VariableShape>& variables);

// Fills in the variables of Hello and the hash and description of their layout. Throws
// Error(kUsage) like LayOutVariables, or if the names are too long for one message.
VariableLayout DescribeVariables(
    const google::protobuf::RepeatedPtrField<wire::VariableShape>& variables, wire::Hello& hello);

}  // namespace muster
