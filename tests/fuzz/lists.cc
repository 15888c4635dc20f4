// Short lists and names on command lines and in files. Accepted values are in range and unique, and
// print to the same text where they are printed. An error quotes the text.
#include <set>

#include "cli/model/import_command.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint_name.h"
#include "common/config/hardware.h"
#include "ps/record/restart_record.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_lists {

void CheckNumbers(const std::string& text) {
  constexpr int64_t kEnd = 1000;
  OrError("--samples", [&] {
    std::set<int64_t> seen;
    for (const int64_t number : ParseNumberList("--samples", text, kEnd)) {
      Require(0 <= number && number < kEnd, "a number out of range");
      Require(seen.insert(number).second, "a duplicate number");
    }
  });
}

void CheckDevices(const std::string& text) {
  OrError(text, [&] {
    const DeviceWish wish = ParseDevices(text);
    std::string again;
    for (const std::string& name : wish.names) again += (again.empty() ? "" : ",") + name;
    Require(wish.names.empty() || ParseDevices(again).names == wish.names,
            "the GPUs change when printed and parsed");
    Require(wish.names.empty() == (wish.kind != DeviceWish::Kind::kNamed), "GPUs without names");
  });
}

void CheckCheckpointName(const std::string& text) {
  const auto name = ParseCheckpointName(text);
  Require(!name || name->Text() == text, "the name changes when printed and parsed");
  Require(!name || (name->step >= 0 && name->generation >= 0), "a negative step");
}

// The lines of the file for `muster import --map`.
void CheckTensorNames(const std::string& text) {
  static const Folder folder;
  const std::string path = folder.Write("names.txt", text);
  OrError(path, [&] {
    for (const auto& [theirs, ours] : ReadTensorNames(path)) {
      Require(!theirs.empty() && ours != "-", "an invalid name");
      Require((theirs + ours).find_first_of(" #\t\n") == std::string::npos, "not a single word");
    }
  });
}

}  // namespace fuzz_lists
}  // namespace muster::fuzz

// The first byte selects the kind.
FUZZ_TARGET(lists) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_lists;
  SilenceLogs();
  Input input(data, size);
  const uint8_t which = input.Byte();
  const std::string text = input.Rest();
  switch (which % 8) {
    case 0:
      CheckNumbers(text);
      break;
    case 1:
      CheckDevices(text);
      break;
    case 2:
      CheckCheckpointName(text);
      break;
    case 6:
      CheckTensorNames(text);
      break;
    default:
      OrError("--lost", [&] { (void)muster::ParseLosses({text}); });
  }
  return 0;
}
