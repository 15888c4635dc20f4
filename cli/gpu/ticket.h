// A job's place among the jobs of this host that want GPUs, or have some: who comes first, and who
// uses what since when.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>
#include <vector>

#include "cli/gpu/lock_folder.h"
#include "common/base/fd.h"

namespace muster {

enum class TicketState : char {
  kTaking = 'T',   // looks for GPUs just now
  kWaiting = 'W',  // there were not enough
  kHolding = 'H',  // has them
};

// What a job says of itself, in a file that only its user can write.
struct TicketText {
  std::string name;  // of the file; their order is that of the queue
  TicketState state = TicketState::kTaking;
  pid_t pid = 0;                  // of the launcher
  size_t wants = 0;               // GPUs
  std::string what;               // "launch configs/cifar10.txtpb"
  std::vector<std::string> gpus;  // UUIDs: those it has, or else those that it would take
  // What the file itself says to those who read it.
  uid_t user = 0;
  std::time_t changed = 0;  // of one that holds GPUs: since when
  bool asleep = false;      // its job was stopped (Ctrl-Z): the others need not wait for it
};

// A file with a lock: whoever can lock it knows that its job is gone, however it ended. Owned by
// one thread.
class Ticket {
 public:
  // Behind all that there are. Removes what earlier jobs of this user (as root: of all) left
  // behind.
  Ticket(const LockFolder& folder, size_t wants, std::vector<std::string> gpus, std::string what);
  ~Ticket();  // removes the file
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  const std::string& name() const { return text_.name; }
  // To be inherited by everything that keeps the job's GPUs locked.
  int fd() const { return file_.get(); }

  void SayWaiting();
  void SayHolding(const std::vector<std::string>& gpus);
  // "I am awake": to be called again and again by a job that waits.
  void Beat() const;

 private:
  void Write() const;

  std::string path_;
  UniqueFd file_;
  TicketText text_;
};

// The tickets of all running and waiting jobs, in the order of the queue.
std::vector<TicketText> ReadTickets(const LockFolder& folder);

}  // namespace muster
