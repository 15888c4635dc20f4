// What the subcommands of muster-worker share.
#pragma once

#include <functional>
#include <string>

namespace muster {

// Texts of options.
inline constexpr const char* kTokenFileText =
    "File with the job token, 32 hexadecimal digits. Default: $MUSTER_TOKEN";
inline constexpr const char* kParentText = "Exit when the parent process with this pid exits";

// Calls `work`, whose log lines begin with `name`. Returns the exit code; an error is logged.
int RunCommand(const std::string& name, const std::function<void()>& work);

}  // namespace muster
