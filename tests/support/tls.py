"""Hosts with TLS keys on disk, and one exchange over a real socket between any two contexts."""

import asyncio
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from mbx.core.keys import SigningKey, key_id
from mbx.core.pairing import certificate_hash
from mbx.daemon import certificates
from mbx.daemon.certificates import TlsKey
from mbx.daemon.host import Host

LOOPBACK: Final = "127.0.0.1"


class Machine(NamedTuple):
    """A host: its host key and its TLS key."""

    host: Host
    tls: TlsKey

    @property
    def id(self) -> str:
        return self.host.key_id


def machine(folder: Path, number: int, *, tls_number: int | None = None) -> Machine:
    """A host of its own number; `tls_number`: another TLS key than its usual one."""
    signer = SigningKey.from_seed(bytes([number]) * 32)
    host = Host(f"host-{number}", key_id("host", signer.public), signer)
    seed = bytes([100 + (tls_number or number)]) * 32
    path = folder / f"{number}-{tls_number or number}.key"
    tls = certificates.load_or_create(str(path), seed, host.key_id, must_exist=False)
    return Machine(host, tls)


def anchors(*machines: Machine) -> dict[str, bytes]:
    """What a listener that is paired with these trusts."""
    return {one.id: one.tls.certificate for one in machines}


async def exchange(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[bytes, bytes | None]:
    """(what the server says of who came: hex of a DER's digest or `none`, what the client saw).

    Raises OSError (ssl.SSLError among them) or EOFError where either side refuses.
    """
    came: list[BaseException] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(2)
            seen = certificates.shown(writer.get_extra_info("ssl_object"))
            name = "none" if seen is None else certificate_hash(seen).hex()
            writer.write(name.encode() + b"\n")
            await writer.drain()
        except (OSError, EOFError) as error:
            came.append(error)
        finally:
            writer.transport.abort()

    listener = await asyncio.start_server(answer, LOOPBACK, 0, ssl=server)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            LOOPBACK, port, ssl=client, server_hostname=""
        )
        try:
            seen = certificates.shown(writer.get_extra_info("ssl_object"))
            writer.write(b"hi")
            said = await reader.readuntil(b"\n")
        finally:
            writer.transport.abort()
    return said.strip(), seen
