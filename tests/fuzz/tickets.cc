// Tickets of jobs that wait for GPUs, written by other users. Their description is short, a single
// line of UTF-8, and safe to print on a terminal.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "cli/gpu/lock_folder.h"
#include "cli/gpu/ticket.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_tickets {

void CheckText(const std::string& text, size_t most) {
  Require(text.size() <= 3 * most, "a long text");  // each byte may have become U+FFFD
  Require(ValidUtf8(text) == text, "a text is not UTF-8");
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    Require(code >= 0x20 && code != 0x7f, "a text with a control character");
  }
  for (size_t at = 0; (at = text.find('\xc2', at)) != std::string::npos; ++at) {
    Require(static_cast<unsigned char>(text[at + 1]) >= 0xa0,
            "a text with an 8-bit control character");
  }
}

// Locks the ticket as its job would, because unlocked ones are not read.
void Check(const Folder& folder, const std::string& bytes) {
  const std::string path = folder.Write("muster-gpu-job-1", bytes);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Require(::flock(file.get(), LOCK_EX | LOCK_NB) == 0, "a lock");
  const LockFolder locks(folder.path());
  const std::vector<TicketText> seen = ReadTickets(locks);
  Require(seen.size() == 1, "the ticket is missing");
  Require(seen[0].pid >= 0 && seen[0].wants <= 1 << 20, "invalid numbers");
  CheckText(seen[0].what, 200);
  for (const std::string& gpu : seen[0].gpus) CheckText(gpu, 96);
}

}  // namespace fuzz_tickets
}  // namespace muster::fuzz

FUZZ_TARGET(tickets) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  static const bool shared = ::chmod(folder.path().c_str(), 01777) == 0;
  muster::fuzz::Require(shared, "cannot share the folder");
  muster::fuzz::fuzz_tickets::Check(folder, {reinterpret_cast<const char*>(data), size});
  return 0;
}
