// A resumed server reads TensorBoard's event files up to the first incomplete record, whatever they
// contain, and uses no more memory than the file's size.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/records.h"
#include "ps/tensorboard/event_records.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_event_file {

// If the first byte is 0, the rest is the file. Otherwise it becomes framed events.
std::string FileOf(Input input) {
  if (input.Byte() == 0) return input.Rest();
  std::string file;
  while (!input.empty()) file += FrameRecord(input.Piece());
  return file;
}

int64_t LastStepIn(const Folder& folder) {
  return ReadEarlierEvents(folder.path(), {"a/tag"}, 7).last_steps.at("a/tag");
}

// Records before an unreadable one still count.
void CheckPrefix(const Folder& folder, const std::string& bytes) {
  tensorboard::Event event;
  event.set_step(7);
  event.mutable_summary()->add_value()->set_tag("a/tag");
  folder.Write("events.out.tfevents.0000000001.a.muster", FrameRecord(event.SerializeAsString()));
  folder.Write("events.out.tfevents.0000000002.b.muster", bytes);
  const int64_t last = LastStepIn(folder);
  // Only a later file with an event that restarts before that step removes it.
  tensorboard::Event start;
  start.set_step(7);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  folder.Write("events.out.tfevents.0000000003.c.muster", FrameRecord(start.SerializeAsString()));
  Require(LastStepIn(folder) < 7, "a restarted run still has the event");
  folder.Write("events.out.tfevents.0000000003.c.muster", "");
  Require(LastStepIn(folder) == last, "a second read differs");
}

// A file is either cut between records, or left unchanged if it has no later steps.
void CheckCut(const Folder& folder, const std::string& bytes) {
  const std::string name = "events.out.tfevents.0000000005.e.muster";
  folder.Write(name, bytes);
  (void)CutEvents(folder.path(), 7);
  std::ostringstream left;
  left << std::ifstream(folder.path() + "/" + name, std::ios::binary).rdbuf();
  Require(bytes.starts_with(left.str()), "the rest is not the start of the file");
  const auto size = left.str().size();
  (void)CutEvents(folder.path(), 7);
  Require(std::filesystem::file_size(folder.path() + "/" + name) == size, "cut twice");
  std::filesystem::remove(folder.path() + "/" + name);  // the next input starts without it
}

}  // namespace fuzz_event_file
}  // namespace muster::fuzz

FUZZ_TARGET(event_file) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  const std::string bytes = muster::fuzz::fuzz_event_file::FileOf({data, size});
  muster::fuzz::fuzz_event_file::CheckPrefix(folder, bytes);
  muster::fuzz::fuzz_event_file::CheckCut(folder, bytes);
  return 0;
}
