// Programs of this installation that print their results as lines of JSON.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/process/child_process.h"

namespace muster {

class SignalSource;

// Runs `program` to its end and returns the JSON objects that it printed, one per line. If it fails
// or prints no object, throws an Error with its exit code and its last error or output. Throws
// Error(kProcessDied) if a signal ends it. Kills it and throws Error(kDeadline) if it runs longer
// than `deadline_s`. `environment` has NAME=VALUE, added to that of this process. Call it from the
// main thread (see ChildProcess).
std::vector<nlohmann::json> RunJsonProgram(const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           double deadline_s,
                                           const std::vector<std::string>& environment = {});

// Like RunJsonProgram, but passes each object to `on_object` as soon as it is printed. If that
// returns false, the program is killed, and nothing is thrown. If `signals` is not null, a signal
// that ends this process also ends the program (ThrowIfStopped). Sets the log and the output of
// `program`.
void StreamJsonProgram(ChildOptions program, double deadline_s,
                       const std::function<bool(nlohmann::json object)>& on_object,
                       SignalSource* signals = nullptr);

}  // namespace muster
