/* blobs.h -- memory files that came through the door beside a link, by number; and those that go the other way.
 *
 * Control adds what arrives.  Compute maps what calls name, when they name it, and gives it back on the client's word.
 * A record can be faster than the descriptor that was sent before it, because they come by different ways: compute then
 * waits until control has looked through the whole door once more.  Under one lock. */
#ifndef GP_BLOBS_H
#define GP_BLOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "worker/process/mailbox.h"

typedef struct gp_blobs gp_blobs;

/* gp_blobs_new -- for one link.
 *   door     the connection that blobs are sent through; duplicated
 *   mailbox  wakes control when compute misses something (borrowed) */
gp_status gp_blobs_new(gp_blobs **out, int door, gp_mailbox *mailbox, gp_error *err);
void gp_blobs_free(gp_blobs *blobs); /* accepts NULL; unmaps and closes all */

/* ---- control ---- */

/* Before and after control looks through the door. */
void gp_blobs_look_begin(gp_blobs *blobs);
void gp_blobs_look_end(gp_blobs *blobs);
/* gp_blobs_add -- fd is handed over, whatever is returned.  GP_EPROTO: number 0 or one that is here, or no descriptor.
 * GP_ELIMIT: GP_LINK_BLOBS_MAX are here. */
gp_status gp_blobs_add(gp_blobs *blobs, uint64_t number, int fd, gp_error *err);
/* Nothing more will come or can be sent: waits end with GP_ECANCELED. */
void gp_blobs_close(gp_blobs *blobs);

/* ---- compute ---- */

/* gp_blobs_map -- the first `bytes` of that blob, mapped read-only until it is released.  GP_EPROTO: there is none, it is shorter, or it is not sealed against shrinking.  GP_ECANCELED. */
gp_status gp_blobs_map(gp_blobs *blobs, uint64_t number, uint64_t bytes, const void **data, gp_error *err);
/* gp_blobs_file -- a descriptor of that blob's file, the caller's.  Errors as above. */
gp_status gp_blobs_file(gp_blobs *blobs, uint64_t number, int *fd, gp_error *err);
/* gp_blobs_release -- forget it; one that is still on its way is waited for.  Nothing happens if there is none. */
void gp_blobs_release(gp_blobs *blobs, uint64_t number);

/* gp_blobs_send -- seal fd against resizing and send it under the next number, which is *number.  The caller keeps fd.
 * Waits while the connection is full.  GP_EPEER: the client is gone.  GP_ECANCELED: the link ends. */
gp_status gp_blobs_send(gp_blobs *blobs, int fd, uint64_t *number, gp_error *err);

/* gp_blob_file_new -- an empty memory file for what is sent.  GP_EIO. */
gp_status gp_blob_file_new(int *out, gp_error *err);
/* The same with these bytes in it.  GP_ENOMEM. */
gp_status gp_blob_file_of(const void *data, size_t bytes, int *out, gp_error *err);

#endif
