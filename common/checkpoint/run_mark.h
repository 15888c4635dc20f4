// Which run a directory belongs to: a file run_id in it, and one beside its checkpoints.
#pragma once

#include <string>

namespace muster {

inline constexpr const char* kRunIdFile = "run_id";

// 32 hexadecimal digits.
bool IsRunId(const std::string& text);

// What the file in this folder says; "" if there is none, or it holds something else.
std::string RunIdIn(const std::string& folder);

// Whose checkpoint a folder is to be: what the run's directory says, or the file beside it; "":
// nothing says it.
std::string ExpectedRunId(const std::string& checkpoint_folder);

// Throws Error(kData) that names both runs if the directory is one run's, and all of the
// checkpoints in it, as far as they can be read, are another's.
void RequireOwnCheckpoints(const std::string& run_dir);

}  // namespace muster
