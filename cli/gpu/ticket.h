// The queue of jobs on this host that want or have GPUs. It records their order, and which job has
// held which GPU since when.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>
#include <vector>

#include "cli/gpu/lock_folder.h"
#include "common/base/fd.h"

namespace muster {

enum class TicketState : char {
  kTaking = 'T',   // looking for GPUs right now
  kWaiting = 'W',  // found too few GPUs
  kHolding = 'H',  // has its GPUs
};

// The content of a ticket, in a file that only the job's user can write.
struct TicketText {
  std::string name;  // name of the file; the queue is sorted by it
  TicketState state = TicketState::kTaking;
  pid_t pid = 0;                  // pid of the launcher
  size_t wants = 0;               // number of GPUs
  std::string what;               // "launch configs/cifar10.txtpb"
  std::vector<std::string> gpus;  // UUIDs of the GPUs that it has or, before that, may take
  // From the status of the file.
  uid_t user = 0;
  std::time_t changed = 0;  // for kHolding, when the job got its GPUs
  bool asleep = false;      // its job is stopped (Ctrl-Z): others need not wait for it
};

// A locked file. The lock is released when the job ends, however it ends. Owned by one thread.
class Ticket {
 public:
  // Joins the end of the queue. Removes tickets that earlier jobs of this user (for root: of all
  // users) left behind.
  Ticket(const LockFolder& folder, size_t wants, std::vector<std::string> gpus, std::string what);
  ~Ticket();  // removes the file
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  const std::string& name() const { return text_.name; }
  // Every process that holds the GPU locks of the job must inherit this.
  int fd() const { return file_.get(); }

  void SayWaiting();
  void SayHolding(const std::vector<std::string>& gpus);
  // Shows that the job is awake. A waiting job must call it regularly.
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
