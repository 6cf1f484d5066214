/* `gradpool ssh-host`: the part of the engine `ssh` on the host of the jobs.
 *
 * The engine starts this process by ssh, one for each request (client/cluster/ssh_wire.h). It is
 * not a command for users, so no help lists it. A launch starts the process of the attempt in a
 * session of its own, without descriptors of the connection. So the job does not depend on it. */
#ifndef GP_CLI_CLUSTER_SSH_HOST_H
#define GP_CLI_CLUSTER_SSH_HOST_H

/* Read a request from standard input and write the reply to standard output. Return the exit code
 * of the process; 0: the reply is complete. */
int ssh_host_main(void);

#endif
