// A job's place among the jobs of this host that want cards, or have some: who comes first, and who
// uses what since when.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "launch/gpu/lock_folder.h"

namespace muster {

enum class TicketState : char {
  kTaking = 'T',   // looks for cards just now
  kWaiting = 'W',  // there were not enough
  kHolding = 'H',  // has them
};

// What a job says of itself. Its user is who owns the file; nobody else can write it.
struct TicketText {
  TicketState state = TicketState::kTaking;
  pid_t pid = 0;                   // of the launcher
  size_t wants = 0;                // cards
  std::string what;                // "launch configs/cifar10.txtpb"
  std::vector<std::string> cards;  // UUIDs: those it has, or else those that it would take
};

struct SeenTicket {
  std::string name;  // in the order of the queue
  TicketText text;
  uid_t user = 0;
  std::time_t changed = 0;  // of one that holds cards: since when
  bool asleep = false;      // its job was stopped (Ctrl-Z): the others need not wait for it
};

// A file with a lock: whoever can lock it knows that its job is gone, however it ended. Owned by
// one thread.
class Ticket {
 public:
  // Behind all that there are. Removes what earlier jobs of this user (as root: of all) left
  // behind.
  Ticket(const LockFolder& folder, size_t wants, std::vector<std::string> cards, std::string what);
  ~Ticket();  // removes the file
  Ticket(Ticket&& other) noexcept;
  Ticket& operator=(Ticket&&) = delete;

  const std::string& name() const { return name_; }
  // To be inherited by everything that keeps the job's cards locked.
  int fd() const { return file_.get(); }

  void Say(TicketState state);
  void SayHolding(const std::vector<std::string>& cards);
  // The file stays where it is when this object goes: this process is about to become another one.
  void Keep() { kept_ = true; }

  // "I am awake": to be called again and again by a job that waits.
  void Beat() const;

 private:
  void Write() const;

  std::string folder_;
  std::string name_;
  UniqueFd file_;
  TicketText text_;
  bool kept_ = false;
  pid_t owner_;
};

// Those of all jobs that live, in the order of the queue.
std::vector<SeenTicket> ReadTickets(const LockFolder& folder);

}  // namespace muster
