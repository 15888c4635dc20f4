#include "common/link/encryption.h"

#include "common/base/error.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

bool StaysHere(const std::string& endpoint) {
  try {
    return ResolvedAddress(TcpAddress::Parse(endpoint)).loopback();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool IsEncrypted(const config::Cluster& cluster, const std::string& endpoint) {
  if (!IsTcp(endpoint)) return false;
  if (cluster.has_encryption()) return cluster.encryption() == config::Cluster::CURVE;
  return !StaysHere(endpoint);
}

bool IsEncrypted(const config::Cluster& cluster, const ListenAddress& address) {
  return IsEncrypted(cluster, address.bind) || IsEncrypted(cluster, address.endpoint);
}

}  // namespace muster
