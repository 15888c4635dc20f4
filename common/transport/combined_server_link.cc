#include "common/transport/combined_server_link.h"

#include <utility>

#include "common/link/epoll.h"

namespace muster {
namespace {

class CombinedServerLink : public ServerLink {
 public:
  CombinedServerLink(std::unique_ptr<ServerLink> first, std::unique_ptr<ServerLink> second)
      : links_{std::move(first), std::move(second)} {
    for (const auto& link : links_) epoll_.Add(link->fd());
  }

  void ShareWeights(SharedMemory& weight_buffers) override {
    for (const auto& link : links_) link->ShareWeights(weight_buffers);
  }
  void ShareGradients(PeerId peer, const GradientLayout& layout) override {
    links_[peer % 2]->ShareGradients(peer / 2, layout);
  }
  bool SharesMemory(PeerId peer) const override { return links_[peer % 2]->SharesMemory(peer / 2); }
  PeerId ConnectionOf(PeerId peer) const override {
    return 2 * links_[peer % 2]->ConnectionOf(peer / 2) + peer % 2;
  }
  std::string endpoint() const override { return links_[1]->endpoint(); }
  int fd() const override { return epoll_.get(); }
  bool Pending() override { return links_[0]->Pending() || SecondPending(); }
  bool may_spin() const override { return links_[0]->may_spin(); }
  bool PrepareToSleep() override {
    second_.DueNow();  // input of this link may end the sleep
    return links_[0]->PrepareToSleep() && links_[1]->PrepareToSleep();
  }

  std::optional<FromWorker> Receive() override {
    std::optional<FromWorker> event = links_[0]->Receive();
    if (event) {
      event->peer = 2 * event->peer;
    } else if (!links_[0]->may_spin() || SecondPending()) {
      event = links_[1]->Receive();
      if (event) event->peer = 2 * event->peer + 1;
    }
    return event;
  }
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override {
    return links_[peer % 2]->Send(peer / 2, message, tensor);
  }
  void Deliver() override {
    for (const auto& link : links_) link->Deliver();
  }

 private:
  // Polling ZeroMQ costs system calls, so it is polled less often while local messages keep this
  // thread awake.
  bool SecondPending() {
    if (links_[0]->may_spin() && !second_.Due()) return false;
    if (!links_[1]->Pending()) return false;
    second_.DueNow();
    return true;
  }

  const std::unique_ptr<ServerLink> links_[2];
  Epoll epoll_;
  PollInterval second_;
};

}  // namespace

std::unique_ptr<ServerLink> Combine(std::unique_ptr<ServerLink> first,
                                    std::unique_ptr<ServerLink> second) {
  return std::make_unique<CombinedServerLink>(std::move(first), std::move(second));
}

}  // namespace muster
