// Programs of this installation that print their results as lines of JSON.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/process/child_process.h"

namespace muster {

class SignalSource;

// Runs `program` to its end and returns the JSON objects that it printed, one a line. Throws Error
// with the program's own last error, or else its last words, and its exit code, where it fails or
// prints no object; Error(kProcessDied) where a signal ends it; Error(kDeadline) where it runs
// longer than `deadline_s` (it is then killed).
// `environment`: NAME=VALUE, in addition to this process's.
// From the main thread, see ChildProcess.
std::vector<nlohmann::json> RunJsonProgram(const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           double deadline_s,
                                           const std::vector<std::string>& environment = {});

// The same, but `on_object` gets each object as soon as it is printed, so that none has to be kept.
// Where it returns false it wants no more: the program is killed, and nothing is thrown. `signals`,
// unless null: one that ends this process ends the program (ThrowIfStopped). The log and the output
// of `program` are set here.
void StreamJsonProgram(ChildOptions program, double deadline_s,
                       const std::function<bool(nlohmann::json object)>& on_object,
                       SignalSource* signals = nullptr);

}  // namespace muster
