"""A replica of a torchft job (Manager, DistributedDataParallel and Optimizer over gloo) whose steps mostly sleep:
prints one line of JSON per step, including whether it was committed. With `lighthouse`, runs the job's lighthouse
instead, which prints its address.

    torchft_replica.py lighthouse
    torchft_replica.py ADDRESS NUMBER SECONDS
"""
import datetime
import json
import sys
import time

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer


def lighthouse():
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000, quorum_tick_ms=100,
                              heartbeat_timeout_ms=1000)
    print(server.address(), flush=True)
    while True:
        time.sleep(60)


def replica(address, number, seconds):
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 10)
    inner = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def load(state):
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timeout=datetime.timedelta(seconds=10)), min_replica_size=1,
                      load_state_dict=load,
                      state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
                      timeout=datetime.timedelta(seconds=10), quorum_timeout=datetime.timedelta(seconds=30),
                      rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=address,
                      hostname="127.0.0.1", replica_id=f"replica_{number}_")
    ddp, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, inner)
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        loss = ddp(torch.randn(8, 64)).square().mean()
        time.sleep(seconds)
        loss.backward()
        optimizer.step()
        after = manager.current_step()
        print(json.dumps({"step": after, "committed": after > before, "replicas": manager.num_participants()}),
              flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "lighthouse":
        lighthouse()
    else:
        replica(sys.argv[1], sys.argv[2], float(sys.argv[3]))
