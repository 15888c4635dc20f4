// Something that is done in a process of its own, so that what it loads, and what that may do to
// the process, ends with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace muster {

// Forks, runs `task` in the child and returns what it returned there, line by line. What the task
// throws as muster::Error is thrown here, and so is Error(kFailure) if the child crashes, and
// Error(kDeadline) if it takes longer than `deadline_s` (it is then killed). `who` names it in
// these. To be called while this process has one thread.
std::vector<std::string> RunInChild(const std::string& who,
                                    const std::function<std::vector<std::string>()>& task,
                                    double deadline_s);

}  // namespace muster
