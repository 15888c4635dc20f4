// The variables of a program that trains its own model, as Hello describes them.
#pragma once

#include <string>

#include "common/graph/variable_layout.h"
#include "proto/wire.pb.h"

namespace muster {

// Lays out the variables in the given order, each as a layer of its own. `optimizer`:
// Hello.optimizer, which belongs to the description. Throws Error(kUsage) that names the variable
// and what is wrong with it.
VariableLayout LayOutVariables(
    const google::protobuf::RepeatedPtrField<wire::VariableShape>& variables,
    const std::string& optimizer);

// Fills in the variables of Hello and the hash and description of their layout. Hello.optimizer is
// set before. Throws Error(kUsage) like LayOutVariables, or if the names are too long for one
// message.
VariableLayout DescribeVariables(
    const google::protobuf::RepeatedPtrField<wire::VariableShape>& variables, wire::Hello& hello);

}  // namespace muster
