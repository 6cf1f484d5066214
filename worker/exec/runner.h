/* runner.h -- the process that starts a client's commands: `gradpool-worker --run FD`.
 *
 *   client ===SEQPACKET (runner_wire.h)===> runner ---fork, exec---> commands, and whatever they start
 *   worker ---pipe, never written---------> runner
 *
 * One runner a worker and lease, one thread, no ZeroMQ.  It is a child subreaper.  End of file from the client (it
 * died, or is done) or from the worker (it died, or the lease ended): every descendant is killed and the runner
 * ends.  Nothing that a command started outlives the worker, the lease or the client.
 *
 * A command gets exactly the directory, umask, environment and descriptors that the client sent, a process group of
 * its own, all signals at their defaults, and the worker's cores.  The worker is not on the way of its output. */
#ifndef GP_RUNNER_H
#define GP_RUNNER_H

/* gp_runner_main -- serve the client at descriptor `client` until it or the worker at descriptor `worker` is gone;
 * returns the exit code.  For a process of its own that has a single thread and no child. */
int gp_runner_main(int client, int worker);

#endif
