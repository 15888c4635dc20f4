// `muster doctor`: checks whether runs would work here, and suggests what to do if not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "cli/doctor/examine.h"
#include "common/config/config.h"

namespace muster {

struct DoctorArguments {
  std::string config_path;  // "": check only the machine
  std::vector<Setting> settings;
  std::vector<std::string> programs;  // muster, muster-server, muster-worker
  std::function<DataCount(const config::Config&)> count_data;
};

// One or more lines for each finding, of at most `width` characters.
std::vector<std::string> DoctorLines(const Findings& findings, int width, bool color);

// Returns the exit code: 0, or 1 if a run would fail. Throws Error(kUsage) for a wrong config or
// unknown devices.
int RunDoctor(const DoctorArguments& arguments);

}  // namespace muster
