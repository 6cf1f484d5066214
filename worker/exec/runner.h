/* The process that starts a client's commands: `gradpool-worker --run FD`.
 *
 *   client ===SEQPACKET (runner_wire.h)===> runner ---fork, exec---> commands and their descendants
 *   worker ---pipe, never written---------> runner
 *
 * A worker has one runner per lease. The runner has a single thread, does not use ZeroMQ, and is a
 * child subreaper. End of file from the client (it exited or is done) or from the worker (it exited
 * or the lease ended) makes the runner kill all descendants and exit. No process started by a
 * command outlives the worker, the lease or the client.
 *
 * A command gets the directory, umask, environment and descriptors sent by the client, a new
 * process group, default signal handling, and the worker's CPU cores. Output does not pass through
 * the worker. */
#ifndef GP_RUNNER_H
#define GP_RUNNER_H

/* Serve the client until the client or the worker closes its end, and return the exit code. The
 * calling process must have a single thread and no children.
 *   client  socket to the client
 *   worker  read end of the pipe from the worker */
int gp_runner_main(int client, int worker);

#endif
