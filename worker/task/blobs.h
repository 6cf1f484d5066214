/* blobs.h -- numbered memory files (blobs) that travel over the control socket beside a link, in
 * both directions.
 *
 * The control thread adds blobs that arrive. Compute maps a blob when a call refers to it, and
 * releases it at the client's request. Descriptors and call records use different channels, so a
 * record can arrive before the descriptor that was sent earlier: compute then waits until control
 * has read all pending control socket events once more. One lock protects the table. */
#ifndef GP_BLOBS_H
#define GP_BLOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "worker/process/mailbox.h"

typedef struct gp_blobs gp_blobs;

/* Create the blob table for one link.
 *   control_socket     control socket connection for sending blobs; duplicated
 *   mailbox  wakes control when compute misses a blob (borrowed) */
gp_status gp_blobs_new(gp_blobs **out, int control_socket, gp_mailbox *mailbox, gp_error *err);
void gp_blobs_free(gp_blobs *blobs); /* accepts NULL; unmaps and closes all blobs */

/* ---- control ---- */

/* Mark the start and the end of a pass over the events of the control socket. */
void gp_blobs_look_begin(gp_blobs *blobs);
void gp_blobs_look_end(gp_blobs *blobs);

/* Add a blob. fd is always taken over. GP_EPROTO: the number is 0 or in use, or there is no
 * descriptor. GP_ELIMIT: GP_LINK_BLOBS_MAX blobs are present. */
gp_status gp_blobs_add(gp_blobs *blobs, uint64_t number, int fd, gp_error *err);

/* Close the table: no more blobs can arrive or be sent. Waits end with GP_ECANCELED. */
void gp_blobs_close(gp_blobs *blobs);

/* ---- compute ---- */

/* Map the first `bytes` bytes of a blob read-only, until its release. GP_EPROTO: there is no
 * such blob, it is shorter, or it is not sealed against shrinking. GP_ECANCELED: the table was
 * closed. */
gp_status gp_blobs_map(gp_blobs *blobs, uint64_t number, uint64_t bytes, const void **data, gp_error *err);

/* Duplicate the blob's file descriptor for the caller. Errors as for gp_blobs_map(). */
gp_status gp_blobs_file(gp_blobs *blobs, uint64_t number, int *fd, gp_error *err);

/* Release a blob, waiting for it if it is in flight. No effect if there is no such blob. */
void gp_blobs_release(gp_blobs *blobs, uint64_t number);

/* Seal fd against resizing and send it as a blob. *number is set to the next blob number. The
 * caller keeps fd. Waits while the connection is full. GP_EPEER: the client has exited.
 * GP_ECANCELED: the link ends. */
gp_status gp_blobs_send(gp_blobs *blobs, int fd, uint64_t *number, gp_error *err);

/* Create an empty memory file for a blob. GP_EIO: memfd_create() failed. */
gp_status gp_blob_file_new(int *out, gp_error *err);

/* Create a memory file with these bytes. GP_ENOMEM: out of memory. */
gp_status gp_blob_file_of(const void *data, size_t bytes, int *out, gp_error *err);

#endif
