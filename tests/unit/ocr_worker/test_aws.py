from __future__ import annotations

import asyncio

from ocr_worker.aws import open_clients

BODY = b"x" * 30_000


async def upload_through_a_reset(monkeypatch):
    """Upload to a server that hangs up on the first try; gives the bodies that it got."""
    bodies = []

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"expect" not in head.lower()
        bodies.append(await reader.readexactly(len(BODY)))
        if len(bodies) == 1:
            writer.transport.abort()
            return
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with server, open_clients("us-east-1") as clients, asyncio.timeout(20):
        await clients.s3.put_object(Bucket="a-bucket", Key="key", Body=BODY)
    return bodies


def test_an_upload_that_is_cut_off_is_sent_again_whole_and_at_once(monkeypatch):
    """aiohttp repeats it by itself; with a body that is read to its end, S3 would wait for a minute."""
    assert asyncio.run(upload_through_a_reset(monkeypatch)) == [BODY, BODY]
