/* seal.h -- memory files that nobody can change any more. */
#ifndef GP_SEAL_H
#define GP_SEAL_H

/* gp_seal -- add those seals (F_SEAL_...) to a memfd; as fcntl(F_ADD_SEALS), 0 or -1 with errno.
 * F_SEAL_WRITE is refused with EBUSY while the kernel holds a page of it (it moves them about), or a child that is being
 * started still has a mapping: both pass, so it is tried again for up to a second. */
int gp_seal(int fd, int seals);

#endif
